"""The work of the leader alone: tasks end, lanes go, and nothing stays for good."""
