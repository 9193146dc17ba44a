export interface Options {
  /** Name of the agent, source or supervisor; default that of the credentials. */
  agent?: string;
  tenant?: string;
  /** File of `sagenbaum user add`; default SAGENBAUM_CREDS. */
  creds?: string;
  /** Of the door; default that of the credentials, SAGENBAUM_HTTP, or without a token http://127.0.0.1:4270. */
  url?: string;
  token?: string;
  /** This process, by a name that no other one has; default a random one. */
  writer?: string;
  /** How long a request may take with its repeats, in ms; default 60,000. A wait that is given comes on top. */
  timeout?: number;
  fetch?: typeof fetch;
}

export interface PlanSpec {
  /** Unique in the tenant; default a random one. */
  id?: string;
  label?: string;
  /** what the plan is to do: the arguments of its undos may read it, as plan.input */
  input?: unknown;
  owner?: string;
  /** As in "2h". */
  deadline?: string;
  deadlineAt?: Date | string;
  triggers?: Record<string, string>;
  /** Those of triggers that are held after the commit, too. */
  afterCommit?: string[];
  labels?: Record<string, string>;
  concurrency?: number;
  /** Default "halt_unless_last": what an irreversible last act came after is undone. */
  onUndoFailure?: "halt_unless_last" | "halt" | "continue";
  secondApprover?: boolean;
  doubtAtCommit?: "settle" | "accept";
  parent?: string;
  parentAction?: string;
  attachToken?: string;
  parentToken?: string;
}

export interface State {
  plan: string;
  state: "open" | "committing" | "committed" | "unwinding" | "compensated" | "quarantined" | "failed" | "resolved";
  reason?: string;
  ended: boolean;
  /** Of a committed plan, which stays committed: the plan that undoes it, or a part of it. */
  undone_as?: string;
  outstanding?: string[];
  doubts?: Doubt[];
  deadline_at?: string;
  /** Of the record that has set that deadline: `follows` of plan.deadline. */
  deadline_set?: number;
  writer?: string;
  actions?: number;
  /** Of a committed plan in which acts were staged. */
  delivery?: Delivery;
}

/** What became of the acts that were staged in a plan; of a plan that is a part of it, plan/action. */
export interface Delivery {
  /** The plan that delivers them; none while they are staged. */
  plan?: string;
  /**
   * "staged": the plan is a part of one that is not committed yet. "failed": all were dropped.
   * "quarantined": some wait for the owner.
   */
  state: "staged" | "delivering" | "delivered" | "failed" | "quarantined" | "resolved";
  delivered?: string[];
  dropped?: string[];
  waiting?: string[];
  owner?: string[];
}

export interface Doubt { action: string; owner?: boolean; waits: string }

export interface Act {
  action: string;
  number: number;
  capability: string;
  key: string;
  sequence: number;
  outcome: "completed" | "failed" | "in_doubt" | "unknown";
  staged?: boolean; // a worker makes it once the plan is committed: delivery tells of that, and not outcome
  delivery?: "staged" | "delivering" | "delivered" | "dropped" | "owner"; // of a staged act: what became of it
  code?: string;
  message?: string;
  output?: unknown;
  incomplete?: boolean; // not all of its output is recorded
  external_ref?: string;
  verdict?: string;
  undone?: boolean; // what it did is not there any more: the plan goes on without it, or was undone after its commit
}

/** What a tool is called with. */
export interface Call<I = unknown> {
  /** Idempotency key for the tool. */
  key: string;
  plan: string;
  action: string;
  input: I;
  /** Aborted by the options `signal` and `timeout`. */
  signal: AbortSignal;
}

export interface ActOptions {
  /** Unique in the plan; default the number of the action. */
  id?: string;
  after?: string[];
  branch?: boolean;
  pivot?: boolean;
  review?: boolean;
  /** Whether an error of the tool proves that it did nothing. One that throws proves nothing, and is its cause. */
  notTaken?: (error: any) => boolean | Promise<boolean>;
  /** ms after which the call is given up, and in doubt; as many as you like. */
  timeout?: number;
  signal?: AbortSignal;
}

export class SagenbaumError extends Error {
  status: number;
  code: string;
  field?: string;
  problem: string;
  want?: string;
  limit?: string;
  /** That has the plan, where an operator has handed it to that one. */
  agent?: string;
  stored?: "nothing" | "all" | "unknown";
}
export class Refused extends SagenbaumError {}
export class Conflict extends SagenbaumError {}
export class Unavailable extends SagenbaumError {}
export class Unauthorized extends SagenbaumError {}
export class NotTaken extends Error { constructor(message?: string, options?: ErrorOptions) }
export class Recorded extends Error {
  action: string;
  outcome: "failed" | "in_doubt" | "unknown";
  code?: string;
  by?: string;
}
export class Blocked extends Recorded {}
export class CommitWaits extends Error { doubts: Doubt[] }

export function parseCredentials(text: string): Record<string, string>;

export class Sagenbaum {
  static connect(options?: Options): Promise<Sagenbaum>;
  readonly tenant: string;
  readonly name: string;
  readonly writer: string;
  ask(verb: string, request: object, options?: { signal?: AbortSignal }): Promise<any>;
  begin(spec?: PlanSpec | string): Promise<Plan>;
  plan<T>(spec: PlanSpec | string, work: (plan: Plan) => Promise<T> | T): Promise<T>;
  resume(id: string): Promise<Plan>;
  find(question?: { state?: string; label?: string; text?: string; capability?: string; after?: string; limit?: number }): Promise<any>;
  putFact(key: string, value: unknown, options?: { id?: string; plan?: string; action?: string }): Promise<{ sequence: number; fact: any }>;
  retractFact(key: string, options?: { id?: string }): Promise<{ sequence: number; fact: any }>;
  giveVerdict(plan: string, action: string, verdict: "allow" | "block" | "redirect", reason?: string, options?: { id?: string; scope?: "action" | "plan" }): Promise<any>;
  reviews(question?: { plan?: string; action?: string; after?: string; limit?: number }): Promise<{ reviews: any[]; next?: string }>;
}

export interface BlobRef { "sagenbaum/blob/v1": string; bytes: number; type?: string }

export class Plan {
  readonly id: string;
  /** When it is undone if it is still open, as this process saw it last. */
  readonly deadlineAt?: Date;
  /** What was recorded when the plan was resumed. */
  readonly recorded: Act[];
  readonly resumed: boolean;
  do<I, O>(capability: string, input: I, forward: (call: Call<I>) => Promise<O> | O, options?: ActOptions): Promise<O>;
  /**
   * A tool that is an action each time it is called, with its input. Of what a framework gives beside that, the call
   * is aborted by a `signal` or `abortSignal`, and the rest is not looked at.
   */
  tool<I, O>(capability: string, forward: (input: I, call: Call<I>) => Promise<O> | O, options?: ActOptions): (input: I, ...beside: unknown[]) => Promise<O>;
  /** Registers an act that a worker makes once the plan is committed, for what cannot be undone. */
  stage(capability: string, input?: unknown, options?: { id?: string; after?: string[]; branch?: boolean; signal?: AbortSignal }): Promise<{ plan: string; action: string; state: "staged"; number: number; key: string; sequence: number }>;
  /** Waits, after the commit, for what became of what is staged; undefined: nothing is. */
  delivered(options?: { signal?: AbortSignal }): Promise<Delivery | undefined>;
  report(capability: string, input: unknown, options?: { id?: string; output?: unknown; externalRef?: string; before?: unknown; after?: string[]; branch?: boolean; pivot?: boolean }): Promise<any>;
  /** Stores a value that is too large for a record, of at most 64 MiB. What it returns takes its place. */
  putBlob(value: Uint8Array | string, options?: { type?: string; signal?: AbortSignal }): Promise<BlobRef>;
  /** Reads a value by what putBlob has returned. */
  getBlob(ref: BlobRef, options?: { signal?: AbortSignal }): Promise<Uint8Array>;
  settle(action: string, outcome: "completed" | "not_taken" | "in_doubt", options?: { output?: unknown; incomplete?: boolean; externalRef?: string; message?: string }): Promise<any>;
  savepoint(name: string): Promise<State>;
  unwindTo(savepoint: string, reason?: string): Promise<void>;
  /** Moves the deadline of the open plan: to so long from now, as in "2h", or to a Date. */
  moveDeadline(to: string | Date, reason: string): Promise<State>;
  commit(): Promise<State>;
  fail(reason?: string): Promise<State>;
  cancel(reason?: string): Promise<State>;
  wait(options?: { signal?: AbortSignal }): Promise<State>;
  /**
   * Waits until nothing is asked about what is in doubt in the open plan. What is not known all the same, with why,
   * is the answer. A Conflict where the plan is being undone, which settles that itself.
   */
  settled(options?: { signal?: AbortSignal }): Promise<Doubt[]>;
  get(): Promise<State & { acts: Act[]; savepoints?: string[] }>;
  /** What an unwind would do; with action, only of it and what came after it, and whether it can be. */
  preview(to?: string, options?: { sequence?: number; action?: string }): Promise<any>;
  begin(spec?: PlanSpec | string): Promise<Plan>;
  /**
   * What becomes of the plan, until its end. It connects again where the stream ends before, or nothing is heard of
   * the door for 45 s, in which it says three times that it is there.
   */
  events(options?: { signal?: AbortSignal }): AsyncGenerator<{ event: "state" | "notice"; data: any }>;
}

/** An id for one fact or verdict, a UUID of version 7: the ledger knows it for good. */
export function newID(): string;
