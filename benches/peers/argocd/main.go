// Command argocd runs Argo CD's own RBAC enforcer, and its extension proxy on
// loopback, on files that `cargo xtask compare` writes. Measurements are printed
// as one JSON object per line. Argo CD's code is imported, not copied or changed.
package main

import (
	"fmt"
	"os"
)

// tasks maps each subcommand to its function, which parses its own flags.
var tasks = map[string]func(arguments []string) error{
	"rbac":            runRBAC,
	"extension-proxy": runExtensionProxy,
}

func main() {
	if len(os.Args) < 2 || tasks[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: argocd rbac|extension-proxy [flags]")
		os.Exit(64)
	}
	if err := tasks[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
