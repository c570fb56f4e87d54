/** What `--help` says below the list of options: examples, exit codes, environment. */

export const PROGRAM_HELP: string = `
Examples:
  millrace run demo                    see it work, with nothing installed
  millrace run demo --crash            the same, its worker killed now and then
  millrace run orders-to-kafka         run pipelines/orders-to-kafka.ts
  millrace preflight orders-to-kafka   whether all that it needs is there
  millrace list                        what there is to run
  millrace tail --help                 watch any stream, without a pipeline

In this repository: npm run pipeline demo, npm run pipeline demo -- --crash
`

export const RUN_HELP: string = `
Examples:
  millrace run orders                     pipelines/orders.ts (.mts, .js, .mjs)
  millrace run ./elsewhere/orders.ts      any file
  millrace run orders --on-held exit      fail if it runs already
  millrace run orders --log-format json   log lines for machines
  millrace run demo --crash --seed 7      a demo with the same choices
With npm, options follow two dashes: npm run pipeline demo -- --crash

The run logs to stderr; stdout belongs to the pipeline's sinks.
SIGINT or SIGTERM drains: what is in flight is finished and progress is stored.
A second signal stops at once; what was in flight comes again at the next start.

Exit codes:
  0        done or drained
  1        stopped by an error while running
  2        wrong use or configuration
  3        environment: unreachable, denied, port taken, Node too old
  4        history expired: the stream no longer keeps what is to be read
  130,143  stopped at once by a second SIGINT, SIGTERM

Environment:
  SPANNER_EMULATOR_HOST            read from an emulator, such as localhost:9010
  GOOGLE_APPLICATION_CREDENTIALS   key file, if not the machine's own identity
  NO_COLOR                         no colours
`

export const PREFLIGHT_HELP: string = `
Examples:
  millrace preflight orders             pipelines/orders.ts
  millrace preflight ./elsewhere/x.ts   any file
  millrace preflight orders --json      name, status, message, fix of each check

Looks at credentials, database, dialect, stream, partition mode, capture type,
retention, grants, clock skew, metadata store and sinks. Each is ok, a warning
or a failure with its fix; what a failure makes pointless is skipped. Reads no
rows, writes nothing and takes no lease: it may run beside the pipeline.

Exit codes:
  0   ready, perhaps with warnings
  2   something failed, or wrong use

Environment:
  SPANNER_EMULATOR_HOST            look at an emulator, such as localhost:9010
  GOOGLE_APPLICATION_CREDENTIALS   key file, if not the machine's own identity
  NO_COLOR                         no colours
`

export const TAIL_HELP: string = `
Examples:
  DB=projects/my-project/instances/my-instance/databases/my-database
  millrace tail --database $DB --stream OrderChanges
  millrace tail --database $DB --stream OrderChanges --start -1h --table Orders
  millrace tail --database $DB --stream OrderChanges --json | jq .keys
  millrace tail --database $DB --stream OrderChanges --start -1d --end now

Prints to stdout: time, operation, table, key, changed columns, transaction.
Changes of one row come in commit order; those of different partitions as they
are read. Long values are cut, except with --json. Nothing is stored: the next
tail begins where its own --start says. Ctrl-C ends it.

Exit codes:
  0   ended by --end or Ctrl-C, or nobody reads its output any more
  1   stopped by an error while reading
  2   wrong use: no such database, stream or option
  3   environment: unreachable or denied
  4   history expired: the stream no longer keeps what --start asks for

Environment:
  SPANNER_EMULATOR_HOST            read from an emulator, such as localhost:9010
  GOOGLE_APPLICATION_CREDENTIALS   key file, if not the machine's own identity
  NO_COLOR                         no colours
`
