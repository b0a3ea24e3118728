"""Remotes: named blobs in object stores, HTTP caches, Redis and folders."""
