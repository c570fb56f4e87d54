/** Deliveries for those who buffer on their own: settled later, in any order, and handed out again on request. */
import { systemClock } from '../core/clock.ts'
import type { Delivery, Sink } from '../core/types.ts'
import type { Source } from '../sources/source.ts'
import { definePipeline, type PipelineOptions } from './define-pipeline.ts'
import { openSource } from './open-source.ts'
import { RedeliveryDesk } from './redelivery-desk.ts'
import type { RunOptions } from './run-pipeline.ts'

export type DeliveriesOptions<T> = Omit<PipelineOptions<T, T>, 'source' | 'steps' | 'sink'> &
  Pick<RunOptions, 'clock' | 'random' | 'logger' | 'owner'> & {
    /** An abort ends the iteration with its reason. */
    readonly signal?: AbortSignal
  }

/**
 * The deliveries of a source, to be settled at any time and in any order.
 * At most `maxInFlight` are open at once (1000 by default). `nack(error, { retryInMs })` hands the value out again
 * after that time; later values of its key wait for it, and those already handed out come again behind it, acked or
 * not, so that order per key holds: an ack counts once all earlier values of its key are acked. `nack(error)` asks the
 * error policy. Ends when the source has ended and everything is settled. Leaving the loop stores the progress made
 * so far.
 * @example
 * for await (const delivery of deliveries(source, { maxInFlight: 5000 })) buffer.push(delivery)
 */
export async function* deliveries<T>(
  source: Source<T>,
  options: DeliveriesOptions<T> = {},
): AsyncGenerator<Delivery<T>, void, undefined> {
  const { clock = systemClock, random, logger, owner, signal, ...rest } = options
  const pipeline = definePipeline({ ...rest, source, sink: unused })
  const { run, closeStore } = openSource(pipeline, {
    clock,
    ...(random && { random }),
    ...(logger && { logger }),
    ...(owner && { owner }),
  })
  const desk = new RedeliveryDesk<T>(clock)
  const pump = desk.pump(run.stream, () => run.status().inFlight === 0, signal)
  try {
    for (;;) {
      const ready = await desk.take()
      if (ready === undefined) return
      for (const delivery of ready) {
        // What was ready together with a value that stops the run would overtake it.
        if (desk.hasFailed) break
        yield delivery
      }
    }
  } finally {
    desk.close()
    try {
      await run.close()
      await pump
    } finally {
      await closeStore()
    }
  }
}

/** Acks every delivery of a list. */
export function ackAll(list: Iterable<Delivery<unknown>>): void {
  for (const delivery of list) delivery.ack()
}

/** Whoever takes the deliveries is the sink. */
const unused: Sink<unknown> = { name: 'deliveries', write: () => Promise.resolve(), close: () => Promise.resolve() }
