// Package cluster tests vgpu-dra with a real control plane of Kubernetes: etcd, kube-apiserver,
// kube-scheduler and kube-controller-manager as they are, built by scripts/kubernetes-deps.sh. Each node
// has a vgpud of its own with soft GPUs, and a vgpu-dra of its own with the rights of
// deploy/kubernetes/rbac.yaml. There is no kubelet and no container runtime: the test asks the driver to
// prepare and unprepare pods' claims, by the kubelet's protocol, and does as a VM in the pod would.
//
// The tests run with the flag -cluster alone, as `make test-kubernetes` does, because the control plane
// takes long to build.
package cluster
