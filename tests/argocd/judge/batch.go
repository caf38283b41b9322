package main

import (
	"encoding/json"
	"fmt"
)

// batching contains many questions of one kind in one line.
type batching struct {
	Batch json.RawMessage `json:"batch"`
}

// outcome is the answer to one question of a batch.
type outcome[Answer any] struct {
	Error string  `json:"error,omitempty"`
	Value *Answer `json:"value,omitempty"`
}

// batch answers the questions in order. A panic becomes the error of its question.
func batch[Question, Answer any](asked batching, answer func(Question) (Answer, error)) (json.RawMessage, error) {
	var questions []Question
	if err := json.Unmarshal(asked.Batch, &questions); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	outcomes := make([]outcome[Answer], 0, len(questions))
	for _, question := range questions {
		outcomes = append(outcomes, single(question, answer))
	}
	return json.Marshal(outcomes)
}

func single[Question, Answer any](question Question, answer func(Question) (Answer, error)) (given outcome[Answer]) {
	defer func() {
		if reason := recover(); reason != nil {
			given = outcome[Answer]{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	value, err := answer(question)
	if err != nil {
		return outcome[Answer]{Error: err.Error()}
	}
	return outcome[Answer]{Value: &value}
}
