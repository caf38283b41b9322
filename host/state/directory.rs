//! Kubernetes YAML files in a folder, watched.
