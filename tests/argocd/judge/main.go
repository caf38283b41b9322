// Command judge says what Argo CD itself makes of ApplicationSets: its own
// generators, its own repository server, its own templates; what its own enforcer
// and globs say; and as what kube-apiserver's own code reads a request.
//
// In: a JSON object a line on standard input, with a `kind`. Out: a JSON object a
// line on standard output, in the same order, `error` where Argo CD has one.
// Never: an address other than a folder of this machine; a rule of its own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/go-logr/logr"
	log "github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// A question; which fields count depends on the kind.
type question struct {
	Kind string `json:"kind"`

	generation
	normalization
	rendering
	renderings
	coding
	batching
}

// An answer to one; what the kind does not give is absent.
type answer struct {
	Error string `json:"error,omitempty"`
	// Of `generate`: the Applications, each the way it came out at least once.
	// Argo CD walks clusters in no order, so one set can have several.
	Outcomes []json.RawMessage `json:"outcomes,omitempty"`
	// Of `normalize`, `decode`, `functions`, `renderings` and what is asked in batches.
	Value json.RawMessage `json:"value,omitempty"`
	// Of `render`.
	Text string `json:"text,omitempty"`
	// Of `encode`: base64.
	Bytes []byte `json:"bytes,omitempty"`
}

// maxAddressSpace is what the process may map: what a question makes Argo CD allocate
// beyond it ends the process, and not others on the machine.
const maxAddressSpace = 8 << 30

func main() {
	limit := syscall.Rlimit{Cur: maxAddressSpace, Max: maxAddressSpace}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		fatal(err)
	}
	log.SetOutput(io.Discard)
	// Nobody reads it, and a differential test would make it format millions of lines.
	log.SetLevel(log.PanicLevel)
	klog.SetLogger(logr.Discard())
	folder, err := os.MkdirTemp("", "judge-")
	if err != nil {
		fatal(err)
	}
	defer os.RemoveAll(folder)
	repositories := newRepositoryServer(folder)
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			fatal(err)
		}
		said, err := json.Marshal(judge(line, repositories))
		if err != nil {
			fatal(err)
		}
		output.Write(append(said, '\n'))
		if err := output.Flush(); err != nil {
			fatal(err)
		}
	}
}

// judge answers one line. What panics is an error: it is one to Argo CD's callers.
func judge(line []byte, repositories *repositoryServer) (given answer) {
	defer func() {
		if reason := recover(); reason != nil {
			given = answer{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: fmt.Sprintf("the question is no JSON of a question: %v", err)}
	}
	var err error
	switch asked.Kind {
	case "generate":
		given.Outcomes, err = generate(asked.generation, repositories)
	case "normalize":
		given.Value, err = normalize(asked.normalization)
	case "render":
		given.Text, err = render(asked.rendering)
	case "renderings":
		given.Value, err = renderAll(asked.renderings)
	case "functions":
		given.Value, err = functions()
	case "encode":
		given.Bytes, err = encode(asked.coding)
	case "decode":
		given.Value, err = decode(asked.coding)
	case "rbac":
		given.Value, err = batch(asked.batching, enforce)
	case "policy":
		given.Value, err = batch(asked.batching, readPolicy)
	case "glob":
		given.Value, err = batch(asked.batching, match)
	case "attributes":
		given.Value, err = batch(asked.batching, attributes)
	case "yaml":
		given.Value, err = batch(asked.batching, readYAML)
	default:
		err = fmt.Errorf("no question is of kind %q", asked.Kind)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return given
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "judge:", err)
	os.Exit(1)
}
