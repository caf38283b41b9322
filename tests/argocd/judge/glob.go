package main

import (
	"github.com/argoproj/argo-cd/v3/util/glob"
)

// globbing asks which texts a pattern, or a list of patterns, matches.
type globbing struct {
	Pattern    string `json:"pattern"`
	Separators string `json:"separators"`
	// For a list instead of one pattern: `exact`, `glob` or `regexp`.
	Mode  string   `json:"mode"`
	List  []string `json:"list"`
	Texts []string `json:"texts"`
}

// matches has the results in the order of the texts; null where the library panics.
type matches struct {
	Matched []*bool `json:"matched"`
}

func match(asked globbing) (matches, error) {
	given := matches{Matched: make([]*bool, 0, len(asked.Texts))}
	for _, text := range asked.Texts {
		matched, err := matchOne(asked, text)
		if err != nil {
			return matches{}, err
		}
		given.Matched = append(given.Matched, matched)
	}
	return given, nil
}

func matchOne(asked globbing, text string) (matched *bool, err error) {
	defer func() {
		if recover() != nil {
			matched, err = nil, nil
		}
	}()
	var said bool
	if asked.Mode != "" {
		said = glob.MatchStringInList(asked.List, text, asked.Mode)
	} else {
		said, err = glob.MatchWithError(asked.Pattern, text, []rune(asked.Separators)...)
	}
	return &said, err
}
