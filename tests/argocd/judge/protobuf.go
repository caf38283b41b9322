package main

import (
	"encoding/json"
	"fmt"

	"github.com/argoproj/argo-cd/v3/pkg/apiclient/applicationset"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// message is the interface of Argo CD's generated messages.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// messages are the messages of the ApplicationSet service, and the types they contain.
var messages = map[string]func() message{
	"Application":                    func() message { return &v1alpha1.Application{} },
	"ApplicationSet":                 func() message { return &v1alpha1.ApplicationSet{} },
	"ApplicationSetList":             func() message { return &v1alpha1.ApplicationSetList{} },
	"ApplicationSetTree":             func() message { return &v1alpha1.ApplicationSetTree{} },
	"ApplicationSetWatchEvent":       func() message { return &v1alpha1.ApplicationSetWatchEvent{} },
	"ApplicationSetGetQuery":         func() message { return &applicationset.ApplicationSetGetQuery{} },
	"ApplicationSetListQuery":        func() message { return &applicationset.ApplicationSetListQuery{} },
	"ApplicationSetWatchQuery":       func() message { return &applicationset.ApplicationSetWatchQuery{} },
	"ApplicationSetTreeQuery":        func() message { return &applicationset.ApplicationSetTreeQuery{} },
	"ApplicationSetCreateRequest":    func() message { return &applicationset.ApplicationSetCreateRequest{} },
	"ApplicationSetDeleteRequest":    func() message { return &applicationset.ApplicationSetDeleteRequest{} },
	"ApplicationSetResponse":         func() message { return &applicationset.ApplicationSetResponse{} },
	"ApplicationSetGenerateRequest":  func() message { return &applicationset.ApplicationSetGenerateRequest{} },
	"ApplicationSetGenerateResponse": func() message { return &applicationset.ApplicationSetGenerateResponse{} },
}

// coding asks to encode or decode one message.
type coding struct {
	Message string `json:"message"`
	// For `encode`.
	Value json.RawMessage `json:"value"`
	// For `decode`: base64.
	Bytes []byte `json:"bytes"`
}

func encode(asked coding) ([]byte, error) {
	made, err := known(asked.Message)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(asked.Value, made); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	return made.Marshal()
}

func decode(asked coding) (json.RawMessage, error) {
	made, err := known(asked.Message)
	if err != nil {
		return nil, err
	}
	if err := made.Unmarshal(asked.Bytes); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	return json.Marshal(made)
}

func known(name string) (message, error) {
	make, found := messages[name]
	if !found {
		return nil, fmt.Errorf("no message is called %q", name)
	}
	return make(), nil
}
