"""What Kubernetes would be given: rendered, checked, and its commands run. `make chart`."""
