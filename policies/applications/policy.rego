# Who may do what in a cluster in the name of an Application.
#
# The gateway asks this file about every request below
# /applications/<namespace>/<name>/k8s/, after Argo CD's policy.csv let the caller
# in: `applications, get` of the Application who reads, `applications, sync` who
# changes something. It hands over what it knows as `input` (docs/policies.md lists
# every field) and carries out the rule `decision` below:
#
#   {"allow": true, "reason": "…"}     the request goes to the cluster
#   {"allow": false, "reason": "…"}    the caller gets 403 and the reason
#
# Whatever else happens (no answer, an error, too slow) is a denial.
#
# Who acts in the cluster is not decided here: the project's
# `destinationServiceAccounts` say it, and impersonation.cel.yaml beside this file
# what they leave open. `input.identity` tells.
#
# As it stands the file repeats what Argo CD does with its own resource views, logs,
# terminal and sync. Change it to your needs, add your cases to cases.yaml, and try
# both with `tollgate policy test`.
package tollgate.applications

# The answer when nothing below says otherwise.
default decision := {"allow": false, "reason": "the request is not allowed"}

# Your own denials win, then the gateway's rules decide.
decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed"} if {
	permitted
} else := {"allow": false, "reason": refusal}

# ------------------------------------------------------------------------------
# Your own denials: texts the caller sees. One is enough to deny. Nobody who may
# not see the Application gets as far as here.
# ------------------------------------------------------------------------------

# Applications that do not change for now have this label; see data/labels.yaml.
deny contains "the application is frozen" if {
	input.access == "write"
	some key, value in data.labels.frozen
	input.application.labels[key] == value
}

# Example: in production people look, and only project tokens change something.
# Remove the `#` in front of the lines to use it, and add a case to cases.yaml.
#
# deny contains "only pipelines change production" if {
# 	input.access == "write"
# 	input.destination.name == "production"
# 	input.principal.kind != "project-token"
# }

# ------------------------------------------------------------------------------
# Who may pass. `input.rbac` has the verdicts of policy.csv.
# ------------------------------------------------------------------------------

# Reading needs `applications, get`.
permitted if {
	input.access == "read"
	input.rbac.applications_get.allow
	shown
	logs_permitted
	programs_permitted
	project_permits
} else if {
	# Changing something needs `applications, sync` and nothing else of the
	# Application, as in Argo CD. A dry run counts: the cluster's admission sees it.
	# A review about oneself (`kubectl auth can-i`) keeps nothing and is a read.
	input.access == "write"
	input.rbac.applications_sync.allow
	programs_permitted
	project_permits
}

# Argo CD never shows what is in a Secret to those who may only look, so who reads
# what data/resources.yaml names needs `applications, sync` besides.
shown if not guarded

shown if input.rbac.applications_sync.allow

guarded if resource in data.resources.guarded

# Logs of pods need `logs, get` besides.
logs_permitted if not input.request.subresource == "log"

logs_permitted if input.rbac.logs_get.allow

# What runs a program, or reaches one, needs `exec, create` besides.
programs_permitted if not runs

programs_permitted if input.rbac.exec_create.allow

runs if input.request.subresource in {"exec", "attach", "portforward", "proxy"}

runs if "proxy" in input.request.verbs

# By WebSocket programs are run with `GET`.
runs if input.request.alsoVerb

runs if {
	input.request.upgrade
	"create" in input.request.verbs
}

# The project permits the destination, and its lists the resource and the namespace
# of this very request.
project_permits if {
	input.project.name == input.application.project
	input.destination.permitted
	listed
}

listed if input.restriction.permitted

# What a service account may read, the cluster says: the gateway asks the lists about
# what changes something, and about what its own identity reads. They know no
# Secrets then, and of what is no resource only what kubectl needs to find its way.
listed if {
	input.access == "read"
	input.identity.acts == "account"
	not input.restriction
}

# `deployments.apps`, as kubectl writes it.
resource := input.request.resource if {
	input.request.apiGroup == ""
} else := sprintf("%s.%s", [input.request.resource, input.request.apiGroup])

# ------------------------------------------------------------------------------
# What the caller is told. The first one that applies. The first text is also what
# the gateway says of an Application that does not exist: keep it, if nobody is to
# learn which there are.
# ------------------------------------------------------------------------------
refusal := "you may not see this application" if {
	not known
} else := "you may not sync this application" if {
	input.access == "write"
	not input.rbac.applications_sync.allow
} else := "only those who may sync the application see what this resource holds" if {
	input.access == "read"
	not shown
} else := "you may not read logs of this application" if {
	input.access == "read"
	not logs_permitted
} else := "you may not run programs in this application" if {
	not programs_permitted
} else := "the application is in another project" if {
	not input.project.name == input.application.project
} else := "the project does not permit the destination" if {
	not input.destination.permitted
} else := input.restriction.reason if {
	input.restriction.permitted == false
} else := "the project's lists were not asked" if {
	not listed
} else := "the request is not allowed"

# Whether the caller may see that there is this Application.
known if input.rbac.applications_get.allow

known if {
	input.access == "write"
	input.rbac.applications_sync.allow
}
