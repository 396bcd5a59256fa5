"""The console in the browser: pages over the list of operations, served beside the HTTP API."""
