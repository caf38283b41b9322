package main

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/argoproj/argo-cd/v3/applicationset/utils"
)

// renderings asks to render many templates, each with its own parameters.
type renderings struct {
	Renderings []struct {
		Template   string          `json:"template"`
		Parameters json.RawMessage `json:"parameters"`
		Fast       bool            `json:"fast"`
		Options    []string        `json:"options"`
	} `json:"renderings"`
}

// rendered is the result of one template.
type rendered struct {
	Error string `json:"error,omitempty"`
	Text  string `json:"text,omitempty"`
	// Whether the text is not valid UTF-8, which JSON would hide.
	Broken bool `json:"broken,omitempty"`
}

func renderAll(asked renderings) (json.RawMessage, error) {
	made := make([]rendered, 0, len(asked.Renderings))
	for _, one := range asked.Renderings {
		// Decoded for each template, because a template can change its parameters.
		var parameters map[string]any
		if err := json.Unmarshal(one.Parameters, &parameters); err != nil {
			return nil, fmt.Errorf("parameters: %w", err)
		}
		made = append(made, renderOne(one.Template, parameters, !one.Fast, one.Options))
	}
	return json.Marshal(made)
}

func renderOne(text string, parameters map[string]any, goTemplate bool, options []string) (made rendered) {
	defer func() {
		if reason := recover(); reason != nil {
			made = rendered{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	becomes, err := (&utils.Render{}).Replace(text, parameters, goTemplate, options)
	if err != nil {
		return rendered{Error: err.Error()}
	}
	return rendered{Text: becomes, Broken: !utf8.ValidString(becomes)}
}
