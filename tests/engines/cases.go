package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"
)

// conformanceCase is a case of OPA's conformance suite, and what OPA makes of it.
type conformanceCase struct {
	Note    string            `json:"note"`
	Modules map[string]string `json:"modules"`
	Data    any               `json:"data"`
	// Absent where the case has none.
	Input any `json:"input,omitempty"`
	// Path of the document that the case asks for; empty where it asks something else.
	Path string `json:"path,omitempty"`
	// Why OPA refuses the modules.
	Refused string      `json:"refused,omitempty"`
	Answer  *regoAnswer `json:"answer,omitempty"`
}

// suite returns all cases for the current version of Rego, each evaluated by OPA.
func suite() (any, error) {
	given := []conformanceCase{}
	err := fs.WalkDir(testdata.V1, "v1", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := testdata.V1.ReadFile(path)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, each := range set.Cases {
			evaluated, err := evaluateCase(each)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", path, each.Note, err)
			}
			given = append(given, evaluated)
		}
		return nil
	})
	return given, err
}

func evaluateCase(given cases.TestCase) (conformanceCase, error) {
	result := conformanceCase{Note: given.Note, Modules: map[string]string{}, Path: documentPath(given.Query)}
	for at, module := range given.Modules {
		result.Modules[fmt.Sprintf("module%d.rego", at)] = module
	}
	asked := regoQuestion{Modules: result.Modules, Query: result.Path}
	if given.Data != nil {
		result.Data = *given.Data
		text, err := json.Marshal(given.Data)
		if err != nil {
			return result, err
		}
		asked.Data = text
	}
	if given.Input != nil {
		result.Input = *given.Input
	}
	if given.InputTerm != nil {
		term, err := ast.ParseTerm(*given.InputTerm)
		if err != nil {
			return result, err
		}
		// An input with a set or a reference has no JSON.
		input, err := ast.JSON(term.Value)
		if err != nil || strings.Contains(*given.InputTerm, "data.") {
			result.Path = ""
		}
		result.Input = input
	}
	if result.Path == "" {
		return result, nil
	}
	if result.Input != nil {
		text, err := json.Marshal(result.Input)
		if err != nil {
			return result, err
		}
		asked.Inputs = []json.RawMessage{text}
	}
	answered := single(asked, evaluateRego)
	if answer, ok := answered.Value.(regoAnswer); ok {
		result.Answer = &answer
	} else {
		result.Refused = answered.Error
	}
	return result, nil
}

// documentPath returns the document of a query such as `data.example.p = x`.
func documentPath(query string) string {
	path, variable, found := strings.Cut(query, "=")
	path = strings.TrimSpace(path)
	if !found || strings.TrimSpace(variable) != "x" || !strings.HasPrefix(path, "data.") {
		return ""
	}
	if strings.ContainsAny(path, "[]() ;") {
		return ""
	}
	return path
}
