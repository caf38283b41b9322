package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/server/extension"
	"github.com/argoproj/argo-cd/v3/server/rbacpolicy"
	"github.com/argoproj/argo-cd/v3/util/assets"
	"github.com/argoproj/argo-cd/v3/util/db"
	"github.com/argoproj/argo-cd/v3/util/rbac"
	"github.com/argoproj/argo-cd/v3/util/session"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/google/uuid"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"k8s.io/client-go/kubernetes/fake"
)

// runExtensionProxy serves Argo CD's extension proxy on loopback, with session
// middleware, manager, enforcer and listers connected as in `NewServer` and
// `registerExtensions` of its API server. There are two differences: objects
// come from a folder instead of a cluster, and the port serves nothing else (the
// real server also separates gRPC from HTTP on it). It prints its address and, on
// a second line, a session token of the account.
func runExtensionProxy(arguments []string) error {
	flags := flag.NewFlagSet("extension-proxy", flag.ExitOnError)
	folder := flags.String("state", "", "folder with Kubernetes YAML")
	listen := flags.String("listen", "127.0.0.1:0", "loopback address to serve on")
	account := flags.String("account", "alice", "local account to make a session for")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	address, err := net.ResolveTCPAddr("tcp", *listen)
	if err != nil {
		return err
	}
	if !address.IP.IsLoopback() {
		return fmt.Errorf("`%s` is not a loopback address", *listen)
	}
	handler, sessions, err := extensionHandler(context.Background(), *folder)
	if err != nil {
		return err
	}
	token, err := sessions.Create(*account+":login", int64((12 * time.Hour).Seconds()), uuid.NewString())
	if err != nil {
		return err
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%s\n%s\n", listener.Addr(), token)
	if err := http.Serve(listener, handler); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func extensionHandler(ctx context.Context, folder string) (http.Handler, *session.SessionManager, error) {
	read, err := readState(folder)
	if err != nil {
		return nil, nil, err
	}
	clients := fake.NewClientset(read.core...)
	configured := settings.NewSettingsManager(ctx, clients, controlPlane)
	projects := applisters.NewAppProjectLister(read.projects).AppProjects(controlPlane)
	applications := applisters.NewApplicationLister(read.applications)

	enforcer := rbac.NewEnforcer(clients, controlPlane, common.ArgoCDRBACConfigMapName, nil)
	if err := enforcer.SetBuiltinPolicy(assets.BuiltinPolicyCSV); err != nil {
		return nil, nil, err
	}
	if err := enforcer.SetUserPolicy(rbac.PolicyCSV(read.rbac)); err != nil {
		return nil, nil, err
	}
	enforcer.SetDefaultRole(read.rbac[rbac.ConfigMapPolicyDefaultKey])
	policies := rbacpolicy.NewRBACPolicyEnforcer(enforcer, projects)
	enforcer.SetClaimsEnforcerFunc(policies.EnforceClaims)

	store := db.NewDB(controlPlane, configured, clients)
	// Argo CD's server logs each extension request at its default level.
	logger := logrus.NewEntry(logrus.StandardLogger())
	manager := extension.NewManager(logger, controlPlane,
		extension.NewDefaultSettingsGetter(configured),
		extension.NewDefaultApplicationGetter(applications),
		extension.NewDefaultProjectGetter(projects, store),
		store, enforcer, extension.NewDefaultUserGetter(policies))
	if err := manager.RegisterExtensions(); err != nil {
		return nil, nil, err
	}

	sessions := session.NewSessionManager(configured, projects, "", nil, session.NewUserStateStorage(nil))
	authenticated := sessions.AuthMiddlewareFunc(false, false, nil)
	routes := http.NewServeMux()
	routes.Handle(extension.URLPrefix+"/",
		otelhttp.NewHandler(authenticated(http.HandlerFunc(manager.CallExtension())), "server.ArgoCDServer/extensions"))
	return routes, sessions, nil
}
