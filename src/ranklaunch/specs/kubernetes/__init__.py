"""Kubernetes' own parts of a pod, for users' values in Kubernetes' form."""
