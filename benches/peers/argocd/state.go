package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

// controlPlane is the namespace of Argo CD and its objects.
const controlPlane = "argocd"

// state is the content of a folder of Kubernetes YAML, which Tollgate reads too,
// in the types that Argo CD's packages accept.
type state struct {
	// core holds ConfigMaps and Secrets for a fake clientset.
	core []runtime.Object
	// rbac is the data of `argocd-rbac-cm`.
	rbac map[string]string
	// applications and projects replace the stores of informers.
	applications cache.Indexer
	projects     cache.Indexer
}

func newIndexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// emptyProjects returns a lister without projects.
func emptyProjects() applisters.AppProjectNamespaceLister {
	return applisters.NewAppProjectLister(newIndexer()).AppProjects(controlPlane)
}

// readState reads every `.yaml` file of the folder.
func readState(folder string) (*state, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	read := &state{applications: newIndexer(), projects: newIndexer()}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			if err := read.add(document); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return read, nil
}

// add decodes one document by its kind.
func (s *state) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "ConfigMap":
		object := &corev1.ConfigMap{}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return err
		}
		if object.Name == "argocd-rbac-cm" {
			s.rbac = object.Data
		}
		s.core = append(s.core, object)
	case "Secret":
		object := &corev1.Secret{}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return err
		}
		// The API server does this on write; the fake clientset does not.
		for key, value := range object.StringData {
			if object.Data == nil {
				object.Data = map[string][]byte{}
			}
			object.Data[key] = []byte(value)
		}
		s.core = append(s.core, object)
	case "Application":
		object := &v1alpha1.Application{}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return err
		}
		return s.applications.Add(object)
	case "AppProject":
		object := &v1alpha1.AppProject{}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return err
		}
		return s.projects.Add(object)
	default:
		return fmt.Errorf("kind `%s` is not known here", kind.Kind)
	}
	return nil
}
