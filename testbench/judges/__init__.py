"""Validators for ranklaunch's output: its schemas, rules of Kubernetes and the engines, Helm."""
