// Command argocd is the Argo CD CLI, for the tests. Unlike the binary of the
// release, it does not contain Argo CD's servers.
package main

import (
	"errors"
	"os"
	"os/exec"

	cli "github.com/argoproj/argo-cd/v3/cmd/argocd/commands"
	"github.com/argoproj/argo-cd/v3/util/grpc"
)

func main() {
	// As in the release: no SRV lookups.
	grpc.DisableSRVLookups()
	command := cli.NewCommand()
	// The handler below prints errors.
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
