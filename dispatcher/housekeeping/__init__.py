"""What the leader alone does, so that tasks end, lanes go and nothing stays for good."""
