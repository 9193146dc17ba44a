// Package access says who may do what on NATS: the roles, the accounts, and the one table
// that gives each role its subjects. What writes the table somewhere takes it from here: the
// embedded server, a nats.conf ([Configuration]), the JWTs of an operator ([Issuer]), and
// an auth callout.
//
// Model: the hosts and all streams are in one account, the hub. Each tenant has an account of
// its own for its agents, workers and people, without JetStream. It imports from the hub
// exactly the subjects on which the hosts serve that tenant ([Imports]). Operators of all
// tenants are in a further account. Within its account a user has a list of subjects that it
// may publish and one that it may subscribe ([User.Permissions]), never a list of denials and
// never allow_responses.
//
// A user is known by the public half of its key. The other half, the seed, is in a file of
// credentials ([Credentials]) that any NATS client reads.
//
//	u := access.User{Name: "coder", Role: access.Agent, Tenant: "default", Key: "UA..."}
//	if err := u.Check(); err != nil { ... }
//	u.Permissions().Publish // saga.default.agent.coder.*, ...
package access
