// Command argocd is Argo CD's own command line, for the tests: the program its
// users have, without the servers that its release has in the same file.
//
// In: arguments. Out: what the command line says. Never: code of it copied.
package main

import (
	"errors"
	"os"
	"os/exec"

	cli "github.com/argoproj/argo-cd/v3/cmd/argocd/commands"
	"github.com/argoproj/argo-cd/v3/util/grpc"
)

func main() {
	// As the release's: no SRV lookups for each address.
	grpc.DisableSRVLookups()
	command := cli.NewCommand()
	// Errors are told by the handler below, once.
	command.SilenceErrors = true
	command.SilenceUsage = true
	err := command.Execute()
	if err == nil {
		return
	}
	said, err := cli.NewDefaultPluginHandler().HandleCommandExecutionError(err, true, os.Args)
	if err == nil {
		return
	}
	os.Stdout.WriteString(said)
	var plugin *exec.ExitError
	if errors.As(err, &plugin) {
		os.Exit(plugin.ExitCode())
	}
	os.Exit(1)
}
