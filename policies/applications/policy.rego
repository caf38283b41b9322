# Who may do what in a cluster in the name of an Application.
#
# The gateway asks this file about every request below
# /applications/<namespace>/<name>/k8s/, after Argo CD's policy.csv let the caller
# in: `applications, get` of the Application who reads, `applications, sync` besides
# who changes something. It hands over what it knows as `input`
# (docs/reference/policy-inputs.md lists every field) and carries out the rule `decision` below:
#
#   {"allow": true, "reason": "…"}     the request goes to the cluster
#   {"allow": false, "reason": "…"}    the caller gets 403 and the reason
#
# Any other outcome (no answer, an error, too slow) is a denial.
#
# Who acts in the cluster is not decided here: the project's
# `destinationServiceAccounts` say it, and impersonation.cel.yaml beside this file
# what they leave open. `input.identity` tells.
#
# As it stands the file repeats what the gateway itself holds every request to, which
# is what Argo CD's server permits with its resource views, logs, terminal and sync of
# local manifests. A rule that is taken out here widens nothing. Add your own denials
# and their cases in cases.yaml, and try both with `tollgate policy test`.
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

# Everything needs `applications, get`.
permitted if {
	input.rbac.applications_get.allow
	sync_permitted
	shown
	logs_permitted
	programs_permitted
	project_permits
	reachable
}

# Changing something needs `applications, sync` besides. A dry run counts: the cluster's
# admission sees it. A review about oneself (`kubectl auth can-i`) keeps nothing and is
# a read.
sync_permitted if input.access == "read"

sync_permitted if input.rbac.applications_sync.allow

# Argo CD syncs manifests that are not from Git for those who have `applications,
# override` too, and so everything that the project permits.
overrides if {
	input.rbac.applications_get.allow
	input.rbac.applications_sync.allow
	input.rbac.applications_override.allow
}

# Everybody else reaches single objects in the Application's resource tree. Who changes
# one needs the right to it, as `applications, update/apps/Deployment/shop/web`; the
# gateway has looked at both.
reachable if overrides

reachable if input.object.permitted

# What the cluster serves, and what the caller may do there, is about no object.
reachable if input.operation == "discover"

# Argo CD never shows what is in a Secret, so who reads what data/resources.yaml names
# must be able to override.
shown if not guarded

shown if input.access == "write"

shown if overrides

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

# `deployments.apps`, as kubectl writes it.
resource := input.request.resource if {
	input.request.apiGroup == ""
} else := sprintf("%s.%s", [input.request.resource, input.request.apiGroup])

# ------------------------------------------------------------------------------
# The reason that the caller receives: the first one that applies. The first text
# is also what the gateway says of an Application that does not exist: keep it, if
# nobody is to learn which there are.
# ------------------------------------------------------------------------------
refusal := "you may not see this application" if {
	not known
} else := "you may not sync this application" if {
	not sync_permitted
} else := "only those who may override the application see what this resource holds" if {
	not shown
} else := "you may not read logs of this application" if {
	not logs_permitted
} else := "you may not run programs in this application" if {
	not programs_permitted
} else := "the application is in another project" if {
	not input.project.name == input.application.project
} else := "the project does not permit the destination" if {
	not input.destination.permitted
} else := input.restriction.reason if {
	input.restriction.permitted == false
} else := input.object.reason if {
	input.object.permitted == false
} else := "you may not override this application" if {
	not reachable
} else := "the request is not allowed"

# Whether the caller may see that there is this Application.
known if input.rbac.applications_get.allow
