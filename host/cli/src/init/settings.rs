//! The settings file that `tollgate init` writes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::found::Found;
use super::objects::quoted;
use tollgate_client::failure::Failure;

/// Where the objects come from.
pub(super) enum Source<'a> {
    Folder(PathBuf),
    /// A kubeconfig and its context.
    Kubeconfig(PathBuf, Option<&'a str>),
}

impl Source<'_> {
    /// The same, however the process's working directory changes.
    pub(super) fn absolute(self) -> Result<Self, Failure> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| Failure::new("init.path", format_args!("`{}`: {error}", path.display())))
        };
        Ok(match self {
            Self::Folder(folder) => Self::Folder(absolute(folder)?),
            Self::Kubeconfig(file, context) => Self::Kubeconfig(absolute(file)?, context),
        })
    }
}

pub(super) struct Settings<'a> {
    pub(super) found: &'a Found,
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) source: Source<'a>,
}

impl Settings<'_> {
    pub(super) fn text(&self) -> String {
        let parts = [
            self.listen(),
            self.state(),
            self.argocd(),
            self.console(),
            AUTHENTICATION.to_owned(),
            self.kubernetes(),
            OTHERS.to_owned(),
        ];
        parts.join("\n")
    }

    fn listen(&self) -> String {
        format!(
            "# Settings of Tollgate, written by `tollgate init`. docs/reference/settings.md explains every key;\n\
             # `tollgate check` finds mistakes. Relative paths are relative to this file.\n\
             \n\
             # For clients. A gateway that others reach needs an address they can reach, and a certificate\n\
             # that they trust in place of this one, which `tollgate init` made for this machine.\n\
             listen: \"{}\"\n\
             tls: {{certificate: tls/tls.crt, key: tls/tls.key}}\n\
             \n\
             # Health, metrics and decisions. It asks nobody who calls: keep it on loopback.\n\
             admin: {{listen: \"{}\"}}\n",
            self.listen, self.admin
        )
    }

    fn state(&self) -> String {
        let mut text = "# Argo CD's own objects: settings, projects, Applications, clusters. A change of them takes\n\
                        # effect by itself.\nstate:\n"
            .to_owned();
        match &self.source {
            Source::Folder(folder) => {
                let _ = writeln!(text, "  directory: {}", quoted(&folder.display().to_string()));
            }
            Source::Kubeconfig(file, context) => {
                let file = quoted(&file.display().to_string());
                let _ = writeln!(text, "  kubernetes:\n    kubeconfig: {file}");
                if let Some(context) = context {
                    let _ = writeln!(text, "    context: {}", quoted(context));
                }
                text.push_str(
                    "    # Namespaces of Applications besides Argo CD's own; ['*'] for all.\n    \
                     # applicationNamespaces: [team-a]\n",
                );
            }
        }
        let _ = write!(
            text,
            "  namespace: {}\n\
             \n\
             # A folder for each front: Rego, CEL, and cases that test them. Change them to your needs.\n\
             policies: {{directory: policies}}\n",
            self.found.namespace
        );
        text
    }

    fn argocd(&self) -> String {
        let Some(server) = &self.found.server else {
            return "# Everything that is not the gateway's own goes to argocd-server, so that both are one host name\n\
                    # for people: docs/argocd.md.\n\
                    # argocd:\n\
                    #   server: https://argocd-server.argocd.svc\n"
                .to_owned();
        };
        let mut text = format!(
            "# Everything that is not the gateway's own goes to argocd-server: the UI, its API, `argocd`.\n\
             # docs/argocd.md says how to move its host name here.\n\
             argocd:\n  server: {}\n",
            quoted(server.as_str().trim_end_matches('/'))
        );
        if self.found.argocd_certificate.is_some() {
            text.push_str(
                "  # The certificate that it made for itself, and a name that is in it.\n  ca: argocd-server-ca.pem\n  \
                 serverName: argocd-server\n",
            );
        }
        text.push_str(
            "  # Its Redis, so that a sign-out there ends access here at once.\n  \
             # redis: {server: redis://argocd-redis.argocd.svc, passwordFile: redis-password}\n",
        );
        text
    }

    fn console(&self) -> String {
        let port = self.listen.port();
        let is_local = self.found.server.is_some() && self.listen.ip().is_loopback();
        let (mark, url) = match is_local {
            true => ("", format!("https://localhost:{port}")),
            false => ("# ", "https://tollgate.example.com".to_owned()),
        };
        format!(
            "# Where people sign in, with a browser or `tollgate login`: docs/sign-in.md. It needs its own\n\
             # host name; Argo CD is at another one of this gateway, such as https://127.0.0.1:{port}.\n\
             {mark}console: {{url: \"{url}\"}}\n"
        )
    }

    fn kubernetes(&self) -> String {
        let mark = if self.found.clusters.is_empty() { "# " } else { "" };
        let mut lines = vec![
            "kubernetes:".to_owned(),
            "  # Accounts of Argo CD are the users of that name in the UserDirectory.".to_owned(),
            "  users:".to_owned(),
            "    - {issuer: argocd, is: username}".to_owned(),
        ];
        if let Some(issuer) = &self.found.issuer {
            lines.extend([
                "    # People of Argo CD's single sign-on, by a claim that nobody chooses for themselves:".to_owned(),
                format!(
                    "    # - {{issuer: {}, claim: preferred_username, is: username}}",
                    quoted(issuer)
                ),
            ]);
        }
        lines.extend(
            [
                "  # Roles by groups of an issuer, in place of a directory:",
                "  # memberships:",
                "  #   - {issuer: https://idp.example.com, oidcGroup: \"corp:shop\", group: people, id: 1, role: developer}",
            ]
            .map(str::to_owned),
        );
        let mut text = "# People reach clusters with kubectl by agents: docs/kubernetes-access.md.\n".to_owned();
        for line in lines {
            let _ = writeln!(text, "{mark}{line}");
        }
        text.push_str(
            "\n# Logins, tokens and the audit log. Several gateways share a PostgreSQL: docs/store.md.\n\
             store: {url: \"sqlite:tollgate.db\"}\n",
        );
        text
    }
}

/// Who is believed, and how Argo CD's policies count.
const AUTHENTICATION: &str = "authentication:
  # Accept the sessions, tokens and single sign-on of this Argo CD; its accounts can sign in.
  argocdSessions: true
  # An OpenID Connect issuer of your own, as in Kubernetes' API server. People sign in there if it has
  # a `client`, with the redirect URI <console.url>/console/callback/corp.
  # jwt:
  #   - issuer: {url: https://idp.example.com, audiences: [tollgate]}
  #     claimMappings:
  #       username: {claim: email, prefix: \"\"}
  #       groups: {claim: groups, prefix: \"corp:\"}
  #     client: {id: tollgate, name: corp, secretFile: client-secret}

# As Argo CD judges, or `strict`, where a deny always wins (`tollgate rbac diff`).
rbac: {semantics: argocd}
";

/// What is off until somebody wants it.
const OTHERS: &str = "# Further fronts. Each has its page in docs/, and its policy in policies/.
#
# Applications enter their cluster as the service account that their project names:
# applications: {}
#
# ApplicationSets are accepted if their author may write all that they generate:
# applicationSets: {}
#
# Callers who may `clusters, connect` enter a cluster with all that its credential may do:
# clusters: {forward: true}
#
# Clusters behind NAT or a firewall join with a connector:
# connectors: {}
#
# Plugins, which mint credentials of clusters or change headers:
# plugins: {directory: plugins}
";
