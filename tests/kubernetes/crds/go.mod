// The releases whose CustomResourceDefinitions the tests install: `cargo xtask kubernetes` takes the
// files out of these modules and compiles nothing.
module tollgate.example/tests/crds

go 1.26.0

require (
	github.com/argoproj/argo-cd/v3 v3.5.7
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.6.3
)
