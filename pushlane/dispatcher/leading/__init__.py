"""What the dispatcher that leads knows of all processes together, and what others ask it for."""
