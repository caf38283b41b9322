package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	log "github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/argoproj/argo-cd/v3/applicationset/controllers/template"
	"github.com/argoproj/argo-cd/v3/applicationset/generators"
	"github.com/argoproj/argo-cd/v3/applicationset/utils"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// Namespace of the control plane of every question.
const namespace = "argocd"

// generation asks for the Applications of one set.
type generation struct {
	ApplicationSet json.RawMessage `json:"applicationset"`
	Clusters       []cluster       `json:"clusters"`
	// Folder of each repository, by the URL that the set uses.
	Repositories map[string]string `json:"repositories"`
	// How often to generate; 0 means once.
	Attempts int `json:"attempts"`
}

// cluster is a cluster with a Secret.
type cluster struct {
	Name        string            `json:"name"`
	Server      string            `json:"server"`
	Project     string            `json:"project"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func generate(asked generation, server *repositoryServer) ([]json.RawMessage, error) {
	var set v1alpha1.ApplicationSet
	if err := json.Unmarshal(asked.ApplicationSet, &set); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if err := utils.CheckInvalidGenerators(&set); err != nil {
		return nil, err
	}
	if set.Namespace == "" {
		set.Namespace = namespace
	}
	world, err := controlPlane(asked.Clusters, set.Spec.Template.Spec.Project)
	if err != nil {
		return nil, err
	}
	known := generators.GetGenerators(context.Background(), world, nil, namespace,
		repositories{server, asked.Repositories}, nil, generators.SCMConfig{}, nil)
	seen := map[string]bool{}
	var outcomes []json.RawMessage
	for range max(asked.Attempts, 1) {
		applications, _, err := template.GenerateApplications(
			log.NewEntry(log.StandardLogger()), *set.DeepCopy(), known, &utils.Render{}, world)
		if err != nil {
			return nil, err
		}
		outcome, err := canonical(applications)
		if err != nil {
			return nil, err
		}
		if !seen[string(outcome)] {
			seen[string(outcome)] = true
			outcomes = append(outcomes, outcome)
		}
	}
	return outcomes, nil
}

// controlPlane returns a fake Kubernetes client with the Secrets of the clusters and
// the project that the set names.
func controlPlane(clusters []cluster, project string) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	var objects []client.Object
	if project != "" && !strings.Contains(project, "{{") {
		objects = append(objects, &v1alpha1.AppProject{
			ObjectMeta: metav1.ObjectMeta{Name: project, Namespace: namespace},
		})
	}
	for index, each := range clusters {
		labels := map[string]string{}
		for key, value := range each.Labels {
			labels[key] = value
		}
		labels[common.LabelKeySecretType] = common.LabelValueSecretTypeCluster
		data := map[string][]byte{"name": []byte(each.Name), "server": []byte(each.Server)}
		if each.Project != "" {
			data["project"] = []byte(each.Project)
		}
		objects = append(objects, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name:        fmt.Sprintf("cluster-%04d", index),
				Namespace:   namespace,
				Labels:      labels,
				Annotations: each.Annotations,
			},
			Data: data,
		})
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), nil
}

// normalization asks for Applications in the form in which Argo CD writes them.
type normalization struct {
	Applications json.RawMessage `json:"applications"`
}

func normalize(asked normalization) (json.RawMessage, error) {
	var applications []v1alpha1.Application
	if err := json.Unmarshal(asked.Applications, &applications); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	return canonical(applications)
}

// canonical encodes Applications as JSON, without `apiVersion` and `kind`.
func canonical(applications []v1alpha1.Application) (json.RawMessage, error) {
	if applications == nil {
		applications = []v1alpha1.Application{}
	}
	for index := range applications {
		applications[index].TypeMeta = metav1.TypeMeta{}
	}
	return json.Marshal(applications)
}

// rendering asks to render one template with its parameters.
type rendering struct {
	Template   string         `json:"template"`
	Parameters map[string]any `json:"parameters"`
	GoTemplate bool           `json:"goTemplate"`
	Options    []string       `json:"options"`
}

func render(asked rendering) (string, error) {
	return (&utils.Render{}).Replace(asked.Template, asked.Parameters, asked.GoTemplate, asked.Options)
}
