// Command argocd is Argo CD, for the tests: its CLI and, as in the binary of the
// release, the servers and controllers that ARGOCD_BINARY_NAME selects.
package main

import (
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	applicationset "github.com/argoproj/argo-cd/v3/cmd/argocd-applicationset-controller/commands"
	dex "github.com/argoproj/argo-cd/v3/cmd/argocd-dex/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	server "github.com/argoproj/argo-cd/v3/cmd/argocd-server/commands"
	cli "github.com/argoproj/argo-cd/v3/cmd/argocd/commands"
	"github.com/argoproj/argo-cd/v3/util/grpc"
)

// components have no plugins, unlike the CLI, and print their errors themselves.
var components = map[string]func() *cobra.Command{
	"argocd-server":                    server.NewCommand,
	"argocd-application-controller":    controller.NewCommand,
	"argocd-applicationset-controller": applicationset.NewCommand,
	"argocd-dex":                       dex.NewCommand,
	"argocd-repo-server":               reposerver.NewCommand,
}

func main() {
	// As in the release: no SRV lookups.
	grpc.DisableSRVLookups()
	if component, ok := components[os.Getenv("ARGOCD_BINARY_NAME")]; ok {
		if component().Execute() != nil {
			os.Exit(1)
		}
		return
	}
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
