"""Serving by LitServe: its workers and queues; a loop, a spec and a transport of ours in the places it has for them."""
