/** What happened to the simulated database, in counts and in words. */
import type { LedgerFault, LedgerTopologyEvent } from '../../simulator/index.ts'
import { shortName } from './lineage.ts'
import type { TopologyCounts } from './screen.ts'

export function topologyCounts(topology: readonly LedgerTopologyEvent[]): TopologyCounts {
  const count = (kind: LedgerTopologyEvent['kind']): number => topology.filter((event) => event.kind === kind).length
  return { split: count('split'), move: count('move'), merge: count('merge') }
}

export function topologyText({ kind, parents, children }: LedgerTopologyEvent): string | undefined {
  if (kind === 'create') return undefined
  return `${kind}: ${parents.map(shortName).join(' + ')} → ${children.map(shortName).join(' + ')}`
}

export function faultCounts(faults: readonly LedgerFault[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const fault of faults) counts[faultName(fault)] = (counts[faultName(fault)] ?? 0) + 1
  return counts
}

export function faultText(fault: LedgerFault): string {
  const place =
    fault.kind === 'kill-connection' ? '' : ` on ${fault.token === null ? 'the first query' : shortName(fault.token)}`
  return `fault: ${faultName(fault)}${place}`
}

function faultName({ kind, code }: LedgerFault): string {
  return code ?? kind
}
