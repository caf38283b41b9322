// Command argocd measures what Tollgate stands beside most: Argo CD's own RBAC
// enforcer and its own extension proxy.
//
// In: files that `cargo xtask compare` wrote. Out: one JSON object a line on
// standard output, or a server on loopback. Never: an address other than
// loopback, a peer's code copied or changed.
package main

import (
	"fmt"
	"os"
)

// tasks maps each subcommand to what it runs; each reads its own flags.
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
