package access

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Permissions are all that a user may publish and subscribe. An entry of Subscribe may have
// the name of a queue group after a space: then it is allowed in that group only.
type Permissions struct {
	Publish   []string
	Subscribe []string
}

// workers is the queue group of all workers.
const workers = " " + api.WorkersGroup

// readings are the verbs of the query API that change nothing, are cheap, and tell everybody
// who may read a tenant the same. Not among them are what hosts tell each other, the rebuild
// that costs a fold, and the history of an agent, in which its sealed values are open.
var readings = []string{
	api.PlanLs.Name, api.PlanFind.Name, api.PlanShow.Name, api.PlanWhy.Name, api.PlanOutcome.Name,
	api.PlanPreview.Name, api.TriggerExplain.Name, api.UndoLs.Name, api.ContractLs.Name,
	api.QuarantineLs.Name, api.RefusedLs.Name, api.DueLs.Name, api.CapabilityLs.Name,
	api.WorkerLs.Name, api.WorkerServed.Name, api.TenantStatus.Name, api.LedgerRead.Name,
	api.LedgerStream.Name, api.FactGet.Name, api.FactLs.Name, api.FactHistory.Name,
	api.MemoryStatus.Name, api.MemoryQueue.Name, api.ReviewLs.Name,
}

// operatings are the verbs of the query API that operators have beside readings.
var operatings = []string{api.MemoryRebuild.Name}

// auditing are the verbs of api.AdminSubject that an auditor has: an export, and the
// checkpoint that it ends with.
var auditing = []string{api.LedgerExport.Name, api.LedgerSign.Name}

// tenanting are the verbs by which operators of all tenants change what there is of them. Those
// of one tenant may not: its limits are not for itself to raise.
var tenanting = []string{api.TenantAdd, api.TenantLimit, api.TenantSuspend, api.TenantResume}

// Permissions is the table: what the user's role may do in its account, and nothing else.
func (u User) Permissions() Permissions {
	p := Permissions{Subscribe: []string{u.Inbox() + ".>"}}
	switch u.Role {
	case Agent:
		u.agent(&p)
	case Worker:
		p.publish(records(u.Tenant, ledger.ClassWorker, u.Name), api.ReplySubject(u.Tenant, "*"),
			api.AgentReplySubject(u.Tenant, "*", "*"),
			api.BlobSubject(u.Tenant, api.BlobWorker, u.Name, "*"))
		for _, c := range u.Capabilities {
			p.subscribe(api.UndoSubject(u.Tenant, c)+workers, api.AskSubject(u.Tenant, c)+workers)
		}
	case Source:
		p.publish(records(u.Tenant, ledger.ClassFact, u.Name),
			api.PlanOutcome.Subject(u.Tenant), api.DoorSubject(u.Tenant, u.Name, "fact.*"))
	case Supervisor:
		p.publish(records(u.Tenant, ledger.ClassVerdict, u.Name),
			api.PlanOutcome.Subject(u.Tenant), api.ReviewLs.Subject(u.Tenant),
			api.DoorSubject(u.Tenant, u.Name, "verdict.*"),
			api.DoorSubject(u.Tenant, u.Name, "review.*"))
	case Auditor:
		u.read(&p)
		for _, verb := range auditing {
			p.publish(api.AdminSubject(u.Tenant, verb))
		}
	case Operator:
		u.operate(&p)
	case Pager:
		p.publish(api.ReplySubject(u.Tenant, "*"))
		p.subscribe(api.PageSubject(u.Tenant, ">"))
	case Local:
		u.everything(&p)
	case Door:
		u.door(&p)
	case Host:
		host(&p)
		if u.Provision {
			provision(&p)
		}
	case Provisioner:
		for _, verb := range streamsOfHosts {
			p.publish("$JS.API." + verb)
		}
		provision(&p)
	case Callout:
		p.publish(">") // where servers want their answers, in an account without anything else
		p.subscribe("$SYS.REQ.USER.AUTH")
	case System:
		p.publish("$SYS.REQ.SERVER.PING.JSZ")
	}
	if len(p.Publish) == 0 {
		p.publish(nothing)
	}
	return p
}

// nothing is a subject that no one uses: to servers, an empty list allows everything.
const nothing = "_NOTHING"

func (p *Permissions) publish(subjects ...string) { p.Publish = append(p.Publish, subjects...) }

func (p *Permissions) subscribe(subjects ...string) {
	p.Subscribe = append(p.Subscribe, subjects...)
}

// Publishes reports whether the user may publish a subject, which has no wildcards.
func (u User) Publishes(subject string) bool {
	return slices.ContainsFunc(u.Permissions().Publish,
		func(allowed string) bool { return covers(allowed, subject) })
}

// records is where one writer of a class appends.
func records(tenant string, class ledger.Class, name string) string {
	return ledger.Source{Tenant: tenant, Class: class, Name: name}.Subject()
}

func agentRecords(tenant, name string) string {
	return ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: name, Plan: "*"}.Subject()
}

// among lets the processes of an agent ask each other, and answer below the subject.
func (p *Permissions) among(subject func(tenant, agent, of string) string, tenant, name string) {
	p.publish(subject(tenant, name, "*"), subject(tenant, name, "*.*"))
	p.subscribe(subject(tenant, name, ">"))
}

func (u User) agent(p *Permissions) {
	t := u.Tenant
	p.publish(agentRecords(t, u.Name), api.PlanOutcome.Subject(t),
		api.ContractLs.Subject(t), api.HistorySubject(t, u.Name),
		api.PreviewSubject(t, u.Name), api.KeySubject(t, u.Name),
		api.DoorSubject(t, u.Name, "plan.*"), api.BlobSubject(t, api.BlobAgent, u.Name, "*"))
	p.subscribe(api.NoticeSubject(t, u.Name, "*"), api.AgentReplySubject(t, u.Name, "*"))
	p.among(api.YieldSubject, t, u.Name)
	for _, c := range u.Capabilities {
		p.publish(api.AskSubject(t, c))
	}
	if u.Run {
		p.among(api.RunSubject, t, u.Name)
		p.publish(api.ReplySubject(t, "*"))
		p.subscribe(api.UndoSubject(t, api.HandlerPrefix+u.Name+".>"))
	}
}

// door is what the door of a host does in a tenant for those who ask it: it acts as agents,
// sources and supervisors of any name, and reads what they may.
func (u User) door(p *Permissions) {
	t := u.Tenant
	p.publish(agentRecords(t, "*"), records(t, ledger.ClassFact, "*"),
		records(t, ledger.ClassVerdict, "*"), api.HistorySubject(t, "*"), api.KeySubject(t, "*"),
		api.AskSubject(t, ">"), api.PreviewSubject(t, "*"),
		api.BlobSubject(t, api.BlobAgent, "*", "*"))
	p.publish(api.PlanOutcome.Subject(t), api.PlanFind.Subject(t), api.ContractLs.Subject(t),
		api.FactGet.Subject(t), api.ReviewLs.Subject(t), api.LedgerRead.Subject(t))
	p.subscribe(api.NoticeSubject(t, "*", "*"), api.AgentReplySubject(t, "*", "*"))
	p.among(api.YieldSubject, t, "*")
}

func (u User) read(p *Permissions) {
	for _, verb := range readings {
		p.publish(api.QuerySubject(u.Tenant, verb))
	}
	p.publish(api.HostsSubject(u.Tenant))
	if u.Tenant == AllTenants {
		p.publish(api.ServerSubject(api.TenantLs), api.ServerSubject(api.TenantErased),
			api.ServerSubject(api.TenantShow))
	}
}

func (u User) operate(p *Permissions) {
	u.read(p)
	for _, verb := range operatings {
		p.publish(api.QuerySubject(u.Tenant, verb))
	}
	p.publish(records(u.Tenant, ledger.ClassOperator, u.Name), api.AdminSubject(u.Tenant, ">"))
	if u.Tenant == AllTenants {
		for _, verb := range tenanting {
			p.publish(api.ServerSubject(verb))
		}
	}
	if u.Reveal {
		p.publish(api.RevealSubject(u.Tenant),
			api.BlobSubject(u.Tenant, api.BlobOperator, u.Name, "*"))
	}
	p.subscribe(api.PageSubject(u.Tenant, ">"))
}

// everything is what all clients of a tenant may do, under any name, and the users' verbs.
func (u User) everything(p *Permissions) {
	t := AllTenants
	p.publish(agentRecords(t, "*"), records(t, ledger.ClassFact, "*"),
		records(t, ledger.ClassVerdict, "*"), records(t, ledger.ClassOperator, "*"),
		records(t, ledger.ClassWorker, "*"), api.QuerySubject(t, ">"),
		api.HostsSubject(t), api.AdminSubject(t, ">"), api.KeySubject(t, "*"),
		api.RevealSubject(t), api.AskSubject(t, ">"), api.ReplySubject(t, "*"),
		api.AgentReplySubject(t, "*", "*"), api.DoorSubject(t, "*", ">"), api.ServerSubject(">"),
		api.BlobSubject(t, "*", "*", "*"))
	p.subscribe(api.UndoSubject(t, ">"), api.AskSubject(t, ">"), api.NoticeSubject(t, "*", "*"),
		api.PageSubject(t, ">"), api.AgentReplySubject(t, "*", "*"))
	p.among(api.RunSubject, t, "*")
	p.among(api.YieldSubject, t, "*")
}

// streamsOfHosts are the requests to JetStream that hosts need: they read streams, and
// destroy keys of plans. The server's own names of streams have no dots, so one token is one
// stream.
var streamsOfHosts = []string{
	"INFO", "STREAM.INFO.*", "STREAM.NAMES", "STREAM.MSG.GET.*", "STREAM.MSG.DELETE.*",
	"DIRECT.GET.*", "DIRECT.GET.*.>", "CONSUMER.CREATE.*", "CONSUMER.CREATE.*.>",
	"CONSUMER.INFO.*.*", "CONSUMER.DELETE.*.*", "CONSUMER.MSG.NEXT.*.*",
}

func host(p *Permissions) {
	t := AllTenants
	p.publish(records(t, ledger.ClassExecutor, ""), "saga."+t+".executor.term",
		records(t, ledger.ClassOperator, "*"), records(t, ledger.ClassVerdict, "*"),
		api.UndoSubject(t, ">"), api.AskSubject(t, ">"), api.NoticeSubject(t, "*", "*"),
		api.PageSubject(t, ">"), api.QuerySubject(t, "released"), api.QuerySubject(t, "erased"),
		api.TenantStatus.Subject(t), api.HostsSubject(t), api.ReplySubject(t, "*"),
		"keys."+t+".*", "erased."+t,
		"blobs."+t+".*.*",
		"$KV.SAGA_HOLDERS.*", "_INBOX.>", "_R_.>")
	for _, verb := range streamsOfHosts {
		p.publish("$JS.API." + verb)
	}
	p.subscribe(api.QuerySubject(t, ">"), api.HostsSubject(t), api.AdminSubject(t, ">"),
		api.KeySubject(t, "*"), api.RevealSubject(t), api.ReplySubject(t, "*"),
		api.BlobSubject(t, "*", "*", "*"), api.ServerSubject("tenant.*"))
}

// provision are the requests to JetStream of a host that makes the streams of tenants, repairs
// and ends them, and says which there are.
func provision(p *Permissions) {
	p.publish("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*",
		"repair.saga.>", "tenant.*")
}
