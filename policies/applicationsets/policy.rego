# Who may make which ApplicationSets, with what they read and what they generate.
#
# The gateway asks this file several times about one request. `input.stage` says what
# a question is about:
#
#   set          the ApplicationSet itself
#   repository   a repository that a git generator reads, before it is read
#   cluster      a cluster that a cluster generator lists
#   generator    a generator that runs in a plugin
#   application  one Application: made, changed, deleted, or left as it is
#
# It hands over what it found out as `input` (docs/reference/policy-inputs.md lists every field) and
# carries out the rule `decision` below:
#
#   {"allow": true, "reason": "…"}     this part may be
#   {"allow": false, "reason": "…"}    the whole request is refused with the reason
#
# Any other outcome (no answer, an error, too slow) refuses the request. One
# refusal does not hide another: the caller reads all of them.
#
# With `compat: argocd` nobody asks this file.
#
# As it stands the file puts the gateway's own findings together: who could not write
# each Application directly cannot have a set write it. It can only be made narrower;
# what those findings refuse is refused regardless of it. Change it to your needs, add
# your cases to cases.yaml, and try both with `tollgate policy test`.
package tollgate.applicationsets

# The answer when nothing below says otherwise.
default decision := {"allow": false, "reason": "the request is not allowed"}

# Your own denials win, then the gateway's findings decide.
decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed"} if {
	permitted
} else := {"allow": false, "reason": refusal}

# ------------------------------------------------------------------------------
# Your own denials: texts the caller sees. One is enough to deny.
# ------------------------------------------------------------------------------

# Projects no set writes Applications of; see data/projects.yaml.
deny contains "the applications of this project are made one by one" if {
	input.stage == "application"
	input.application.action != "keep"
	input.application.project in data.projects.by_hand
}

# Example: only pipelines change what runs in production. Remove the `#` in front of
# the lines to use it, and add a case to cases.yaml.
#
# deny contains "only pipelines change production" if {
# 	input.stage == "application"
# 	input.application.action != "keep"
# 	input.destination.name == "production"
# 	input.principal.kind != "project-token"
# }

# Example: generators that ask other services are for platform engineers.
#
# deny contains "ask the platform team for generators of this kind" if {
# 	input.stage == "generator"
# 	not "platform" in input.principal.groups
# }

# ------------------------------------------------------------------------------
# What may be. Each finding says `permitted`, and `reason` where it is not.
# ------------------------------------------------------------------------------

# The rights a set needs: `applicationsets, create` to make one, and so on.
permitted if {
	input.stage == "set"
	input.rbac.permitted
} else if {
	# `repositories, get`, and the gateway may ask the repository.
	input.stage == "repository"
	input.rbac.permitted
	input.source.permitted
} else if {
	# `clusters, get`.
	input.stage == "cluster"
	input.rbac.permitted
} else if {
	input.stage == "generator"
	input.rbac.permitted
} else if {
	# What is there afterwards is as somebody with these rights could write it.
	input.stage == "application"
	input.application.action in {"create", "update", "keep"}
	input.rbac.permitted
	input.object.permitted
	input.ownership.permitted
	input.project.permitted
	input.namespace.permitted
	input.source.permitted
	input.destination.permitted
} else if {
	# What goes was the set's, and the caller could delete it.
	input.stage == "application"
	input.application.action == "delete"
	input.rbac.permitted
	input.ownership.permitted
}

# ------------------------------------------------------------------------------
# The reason that the caller receives: the first finding that refuses.
# ------------------------------------------------------------------------------
refusal := input.rbac.reason if {
	not input.rbac.permitted
} else := input.object.reason if {
	input.object.permitted == false
} else := input.ownership.reason if {
	input.ownership.permitted == false
} else := input.project.reason if {
	input.project.permitted == false
} else := input.namespace.reason if {
	input.namespace.permitted == false
} else := input.source.reason if {
	input.source.permitted == false
} else := input.destination.reason if {
	input.destination.permitted == false
} else := "the request is not allowed"
