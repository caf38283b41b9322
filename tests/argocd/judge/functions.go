package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/Masterminds/sprig/v3"

	"github.com/argoproj/argo-cd/v3/applicationset/utils"
)

// functions returns the names that Argo CD's templates may call: all functions of sprig,
// and those that Argo CD is known to add, that its own parser accepts.
func functions() (json.RawMessage, error) {
	candidates := []string{"normalize", "slugify", "toYaml", "fromYaml", "fromYamlArray"}
	for name := range sprig.GenericFuncMap() {
		candidates = append(candidates, name)
	}
	slices.Sort(candidates)
	var known []string
	for _, name := range candidates {
		// In a branch that is not taken, so that the function is parsed but not called.
		_, err := (&utils.Render{}).Replace("{{ if false }}{{ "+name+" }}{{ end }}", map[string]any{"x": ""}, true, nil)
		if err == nil || !strings.Contains(err.Error(), "not defined") {
			known = append(known, name)
		}
	}
	return json.Marshal(known)
}
