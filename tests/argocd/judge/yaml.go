package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/argoproj/argo-cd/v3/applicationset/utils"
)

// document asks how Argo CD reads a text in one of the places where it reads YAML.
type document struct {
	// `generator`: a file of a git generator, or `elementsYaml`. `patch`: `templatePatch`.
	// `map` and `list`: `fromYaml` and `fromYamlArray`.
	Place string `json:"place"`
	// U+F780 to U+F7FF stand for the bytes 0x80 to 0xFF, because JSON cannot hold invalid UTF-8.
	Text string `json:"text"`
}

func readYAML(asked document) (json.RawMessage, error) {
	text := bytesOf(asked.Text)
	switch asked.Place {
	case "generator":
		return fromGenerator([]byte(text))
	case "patch":
		converted, err := utils.ConvertYAMLToJSON(text)
		if err != nil {
			return nil, err
		}
		var value any
		if err := json.Unmarshal([]byte(converted), &value); err != nil {
			return nil, err
		}
		return json.Marshal(value)
	case "map":
		return fromTemplate("{{ fromYaml .text | mustToRawJson }}", text)
	case "list":
		return fromTemplate("{{ fromYamlArray .text | mustToRawJson }}", text)
	default:
		return nil, fmt.Errorf("no place is called %q", asked.Place)
	}
}

// fromGenerator repeats what the git generator does, which has no function to call: it reads
// a mapping, or else a list of mappings. The list generator accepts only a list.
func fromGenerator(text []byte) (json.RawMessage, error) {
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object); err == nil {
		return json.Marshal(object)
	}
	objects := []map[string]any{}
	if err := yaml.Unmarshal(text, &objects); err != nil {
		return nil, err
	}
	return json.Marshal(objects)
}

func fromTemplate(template, text string) (json.RawMessage, error) {
	parameters := map[string]any{"text": text}
	becomes, err := (&utils.Render{}).Replace(template, parameters, true, nil)
	return json.RawMessage(becomes), err
}

func bytesOf(text string) string {
	var made strings.Builder
	for _, letter := range text {
		if letter >= 0xF780 && letter <= 0xF7FF {
			made.WriteByte(byte(letter - 0xF700))
		} else {
			made.WriteRune(letter)
		}
	}
	return made.String()
}
