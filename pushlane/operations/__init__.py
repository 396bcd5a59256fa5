"""All that can be done with pushlane, each as one struct; every door is made of their list.

The client has a method for each, the commands do them, and an HTTP API is to be made from them.
"""
