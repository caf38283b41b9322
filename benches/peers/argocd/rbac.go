package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/server/rbacpolicy"
	"github.com/argoproj/argo-cd/v3/util/rbac"
	"github.com/golang-jwt/jwt/v5"
	"tollgate.example/benches/measure"
)

// tuple is the access that is asked for.
type tuple struct {
	Resource string `json:"resource"`
	Action   string `json:"action"`
	Object   string `json:"object"`
}

// questions is the file that every peer reads, made by benches/support/rows.rs.
type questions struct {
	// Rows of the policy.
	Rows int `json:"rows"`
	// Policy in Argo CD's CSV.
	Policy string `json:"policy"`
	// Subject is the caller's `sub` claim.
	Subject string `json:"subject"`
	// Groups is the caller's `groups` claim.
	Groups []string `json:"groups"`
	// Hit is allowed, Miss denied by default.
	Hit  tuple `json:"hit"`
	Miss tuple `json:"miss"`
	// Applications to ask for one by one, as a list does; if empty, no list is timed.
	Applications []string `json:"applications"`
}

// caller asks Argo CD's enforcer on behalf of one person.
type caller struct {
	enforcer *rbac.Enforcer
	claims   jwt.MapClaims
	asked    int
}

// runRBAC times Argo CD's enforcer as its API server uses it: it takes claims,
// tries the default role, the user and the groups, and uses one cached casbin
// enforcer.
func runRBAC(arguments []string) error {
	flags := flag.NewFlagSet("rbac", flag.ExitOnError)
	path := flags.String("questions", "", "file with policy, caller and tuples")
	budget := flags.Duration("time", 2*time.Second, "time for each question")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	var asked questions
	if err := json.Unmarshal(text, &asked); err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	who, err := newCaller(asked)
	if err != nil {
		return err
	}
	if err := who.single(asked, *budget); err != nil {
		return err
	}
	if len(asked.Applications) == 0 {
		return nil
	}
	return who.list(asked, *budget)
}

func newCaller(asked questions) (*caller, error) {
	enforcer := rbac.NewEnforcer(nil, controlPlane, common.ArgoCDRBACConfigMapName, nil)
	policies := rbacpolicy.NewRBACPolicyEnforcer(enforcer, emptyProjects())
	enforcer.SetClaimsEnforcerFunc(policies.EnforceClaims)
	if err := enforcer.SetUserPolicy(asked.Policy); err != nil {
		return nil, err
	}
	groups := make([]any, 0, len(asked.Groups))
	for _, group := range asked.Groups {
		groups = append(groups, group)
	}
	return &caller{enforcer: enforcer, claims: jwt.MapClaims{"sub": asked.Subject, "groups": groups}}, nil
}

// single times one decision for a tuple not asked before and for a repeated one.
//
// The two differ by orders of magnitude, because Argo CD keeps every decision in
// an unbounded map until the policy changes.
func (c *caller) single(asked questions, budget time.Duration) error {
	for _, question := range []struct {
		name string
		tuple
		want bool
	}{{"hit", asked.Hit, true}, {"miss", asked.Miss, false}} {
		fresh := func() error {
			c.asked++
			return c.expect(question.tuple, question.Object+"-"+strconv.Itoa(c.asked), question.want)
		}
		repeated := func() error { return c.expect(question.tuple, question.Object, question.want) }
		for _, run := range []struct {
			name string
			once func() error
		}{{question.name, fresh}, {question.name + "-repeated", repeated}} {
			measured, err := measure.Once(fmt.Sprintf("rbac/%s/%d", run.name, asked.Rows), budget, run.once)
			if err != nil {
				return err
			}
			if err := measure.Emit(measured); err != nil {
				return err
			}
		}
	}
	return nil
}

// expect asks once and fails on a wrong answer.
func (c *caller) expect(asked tuple, object string, want bool) error {
	if got := c.enforcer.Enforce(c.claims, asked.Resource, asked.Action, object); got != want {
		return fmt.Errorf("%s, %s, %s: allowed is %v, expected %v", asked.Resource, asked.Action, object, got, want)
	}
	return nil
}

// list asks for each application in turn, as Argo CD's list does, for at most
// eight times the budget, and scales the time up to the whole list. The repeated
// list asks for the same part of the applications.
func (c *caller) list(asked questions, budget time.Duration) error {
	whole, part := len(asked.Applications), asked.Applications
	for _, name := range []string{"list", "list-repeated"} {
		start, done := time.Now(), 0
		for done < len(part) && (done == 0 || time.Since(start) < 8*budget) {
			c.enforcer.Enforce(c.claims, rbac.ResourceApplications, rbac.ActionGet, part[done])
			done++
		}
		nanoseconds := float64(time.Since(start)) * float64(whole) / float64(done)
		measured := measure.Result{Name: fmt.Sprintf("%s/%d", name, whole), Nanoseconds: nanoseconds, Samples: 1}
		if done < whole {
			measured.ScaledFrom = done
		}
		if err := measure.Emit(measured); err != nil {
			return err
		}
		part = part[:done]
	}
	return nil
}
