// Command engines evaluates Rego with OPA and CEL with cel-go, as the reference of
// differential tests.
//
// It reads one JSON object per line, with a `kind` and a `batch`, from standard input, and
// writes one JSON object per line to standard output, in the same order. `value` has an
// answer to each question of the batch. The kind `conformance` has no batch; it is
// answered with OPA's conformance suite.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
)

// line contains many questions of one kind.
type line struct {
	Kind  string          `json:"kind"`
	Batch json.RawMessage `json:"batch"`
}

// answers has the answer to each question of a line.
type answers struct {
	Error string `json:"error,omitempty"`
	Value any    `json:"value,omitempty"`
}

// outcome is the answer to one question.
type outcome struct {
	Error string `json:"error,omitempty"`
	Value any    `json:"value,omitempty"`
}

// maxAddressSpace limits the memory of the process, so that a question that makes an
// engine allocate too much ends this process and no other on the machine.
const maxAddressSpace = 8 << 30

func main() {
	limit := syscall.Rlimit{Cur: maxAddressSpace, Max: maxAddressSpace}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		fatal(err)
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	for {
		text, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			fatal(err)
		}
		said, err := json.Marshal(answer(text))
		if err != nil {
			fatal(err)
		}
		output.Write(append(said, '\n'))
		if err := output.Flush(); err != nil {
			fatal(err)
		}
	}
}

func answer(text []byte) answers {
	var asked line
	if err := json.Unmarshal(text, &asked); err != nil {
		return answers{Error: fmt.Sprintf("the line is no JSON of a batch: %v", err)}
	}
	switch asked.Kind {
	case "rego":
		return batch(asked.Batch, evaluateRego)
	case "cel":
		return batch(asked.Batch, evaluateCEL)
	case "conformance":
		value, err := suite()
		if err != nil {
			return answers{Error: err.Error()}
		}
		return answers{Value: value}
	default:
		return answers{Error: fmt.Sprintf("no question is of kind %q", asked.Kind)}
	}
}

// batch answers the questions in order.
func batch[Question any](text json.RawMessage, answer func(Question) (any, error)) answers {
	var questions []Question
	if err := json.Unmarshal(text, &questions); err != nil {
		return answers{Error: fmt.Sprintf("decoding: %v", err)}
	}
	outcomes := make([]outcome, 0, len(questions))
	for _, question := range questions {
		outcomes = append(outcomes, single(question, answer))
	}
	return answers{Value: outcomes}
}

// single answers one question. A panic becomes the error of the question.
func single[Question any](question Question, answer func(Question) (any, error)) (given outcome) {
	defer func() {
		if reason := recover(); reason != nil {
			given = outcome{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	value, err := answer(question)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return outcome{Value: value}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "engines:", err)
	os.Exit(1)
}
