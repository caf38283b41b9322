package main

import (
	"fmt"

	"github.com/casbin/casbin/v2"
	"github.com/golang-jwt/jwt/v5"
	"gopkg.in/yaml.v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/server/rbacpolicy"
	"github.com/argoproj/argo-cd/v3/util/assets"
	"github.com/argoproj/argo-cd/v3/util/rbac"
)

// policySource is the input from which Argo CD's RBAC is built.
type policySource struct {
	// Data of `argocd-rbac-cm`.
	Data map[string]string `json:"data"`
	// Whether the built-in policy is included; Argo CD's server always includes it.
	Builtin  bool               `json:"builtin"`
	Projects []projectWithRoles `json:"projects"`
}

type projectWithRoles struct {
	Name  string                 `json:"name"`
	Roles []v1alpha1.ProjectRole `json:"roles"`
}

// enforcement asks for decisions of one policy.
type enforcement struct {
	policySource
	Requests []accessRequest `json:"requests"`
}

type accessRequest struct {
	// Claims of a token. Without them, `subject` is the subject.
	Claims   map[string]any `json:"claims"`
	Subject  string         `json:"subject"`
	Resource string         `json:"resource"`
	Action   string         `json:"action"`
	Object   string         `json:"object"`
}

// verdicts has the decisions in the order of the requests.
type verdicts struct {
	Allowed []bool `json:"allowed"`
}

func enforce(asked enforcement) (verdicts, error) {
	enforcer, err := newEnforcer(asked.policySource)
	if err != nil {
		return verdicts{}, err
	}
	given := verdicts{Allowed: make([]bool, 0, len(asked.Requests))}
	for _, request := range asked.Requests {
		var subject any = request.Subject
		if request.Claims != nil {
			subject = jwt.MapClaims(request.Claims)
		}
		given.Allowed = append(given.Allowed, enforcer.Enforce(subject, request.Resource, request.Action, request.Object))
	}
	return given, nil
}

// newEnforcer creates Argo CD's enforcer as its server does at start.
func newEnforcer(source policySource) (*rbac.Enforcer, error) {
	projects := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, each := range source.Projects {
		project := &v1alpha1.AppProject{
			ObjectMeta: metav1.ObjectMeta{Name: each.Name, Namespace: namespace},
			Spec:       v1alpha1.AppProjectSpec{Roles: each.Roles},
		}
		if err := projects.Add(project); err != nil {
			return nil, err
		}
	}
	enforcer := rbac.NewEnforcer(nil, namespace, common.ArgoCDRBACConfigMapName, nil)
	lister := applisters.NewAppProjectLister(projects).AppProjects(namespace)
	policies := rbacpolicy.NewRBACPolicyEnforcer(enforcer, lister)
	enforcer.SetClaimsEnforcerFunc(policies.EnforceClaims)
	if source.Builtin {
		if err := enforcer.SetBuiltinPolicy(assets.BuiltinPolicyCSV); err != nil {
			return nil, err
		}
	}
	enforcer.SetDefaultRole(source.Data[rbac.ConfigMapPolicyDefaultKey])
	enforcer.SetMatchMode(source.Data[rbac.ConfigMapMatchModeKey])
	var scopes []string
	if text := source.Data[rbac.ConfigMapScopesKey]; text != "" {
		scopes = make([]string, 0)
		if err := yaml.Unmarshal([]byte(text), &scopes); err != nil {
			return nil, fmt.Errorf("scopes: %w", err)
		}
	}
	policies.SetScopes(scopes)
	if err := enforcer.SetUserPolicy(rbac.PolicyCSV(source.Data)); err != nil {
		return nil, err
	}
	return enforcer, nil
}

// policyLines are the `p` and `g` rows that Argo CD reads from a policy.
type policyLines struct {
	Rows   [][]string `json:"rows"`
	Grants [][]string `json:"grants"`
}

func readPolicy(asked policySource) (policyLines, error) {
	enforcer, err := newEnforcer(asked)
	if err != nil {
		return policyLines{}, err
	}
	loaded, ok := enforcer.CreateEnforcerWithRuntimePolicy("", "").(*casbin.CachedEnforcer)
	if !ok {
		return policyLines{}, fmt.Errorf("the enforcer is a %T", loaded)
	}
	rows, err := loaded.GetPolicy()
	if err != nil {
		return policyLines{}, err
	}
	grants, err := loaded.GetGroupingPolicy()
	if err != nil {
		return policyLines{}, err
	}
	return policyLines{Rows: rows, Grants: grants}, nil
}
