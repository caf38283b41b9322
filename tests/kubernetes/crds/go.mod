// The release of Argo CD whose CustomResourceDefinitions the tests install:
// `cargo xtask kubernetes` takes the files out of this module and compiles nothing.
module tollgate.example/tests/crds

go 1.26.0

require github.com/argoproj/argo-cd/v3 v3.5.7
