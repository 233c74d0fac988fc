"""What Kubernetes has in a pod, where users give it as Kubernetes has it."""
