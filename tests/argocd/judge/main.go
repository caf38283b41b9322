// Command judge answers questions by running code of Argo CD and Kubernetes, as the
// reference of differential tests: Argo CD's generators, repository server, templates,
// RBAC enforcer, sync windows and globs, and kube-apiserver's parser of requests.
//
// It reads one JSON object per line, with a `kind`, from standard input, and writes one
// JSON object per line to standard output, in the same order. `error` is set where Argo
// CD has an error. Git repositories are folders of this machine.
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

// A question. Its kind determines which fields are used.
type question struct {
	Kind string `json:"kind"`

	generation
	normalization
	rendering
	renderings
	coding
	batching
}

// An answer. Fields that the kind does not use are absent.
type answer struct {
	Error string `json:"error,omitempty"`
	// For `generate`: every distinct list of Applications that was generated. There can
	// be several, because Argo CD's order of clusters is not deterministic.
	Outcomes []json.RawMessage `json:"outcomes,omitempty"`
	// For `normalize`, `decode`, `functions`, `renderings` and batches.
	Value json.RawMessage `json:"value,omitempty"`
	// For `render`.
	Text string `json:"text,omitempty"`
	// For `encode`: base64.
	Bytes []byte `json:"bytes,omitempty"`
}

// maxAddressSpace limits the memory of the process, so that a question that makes Argo CD
// allocate too much ends this process and no other on the machine.
const maxAddressSpace = 8 << 30

func main() {
	limit := syscall.Rlimit{Cur: maxAddressSpace, Max: maxAddressSpace}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		fatal(err)
	}
	log.SetOutput(io.Discard)
	// Otherwise a differential test would format millions of lines that nobody reads.
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

// judge answers one line. A panic becomes an error, as for Argo CD's callers.
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
	case "sync-windows":
		given.Value, err = batch(asked.batching, canSync)
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
