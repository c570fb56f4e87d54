/** Puts the values of a result together again: Spanner may cut one value over several messages. */

/** A protobuf Value as the client hands it over. */
export interface WireValue {
  readonly nullValue?: unknown
  readonly boolValue?: boolean | null
  readonly numberValue?: number | null
  readonly stringValue?: string | null
  readonly listValue?: { readonly values?: readonly WireValue[] | null } | null
}

export interface PartialResult {
  readonly values?: readonly WireValue[] | null
  readonly chunkedValue?: boolean | null
}

/** Collects whole values; the rest of a cut one waits for the next message. */
export class PartialResults {
  #cut: WireValue | undefined

  /** True while a cut value waits: a query must not be resumed behind such a message. */
  get isCut(): boolean {
    return this.#cut !== undefined
  }

  take({ values, chunkedValue }: PartialResult): readonly WireValue[] {
    if (!values || values.length === 0) return []
    const whole = [...values]
    if (this.#cut !== undefined) {
      whole[0] = mergeCut(this.#cut, whole[0]!)
      this.#cut = undefined
    }
    if (chunkedValue) this.#cut = whole.pop()
    return whole
  }
}

/** Strings are joined; lists are joined, and the two elements at the cut merge in turn if they can. */
function mergeCut(first: WireValue, rest: WireValue): WireValue {
  if (isString(first) && isString(rest)) return { stringValue: first.stringValue! + rest.stringValue! }
  const head = first.listValue?.values
  const tail = rest.listValue?.values
  if (!first.listValue || !rest.listValue || !head || !tail || head.length === 0 || tail.length === 0) {
    return { listValue: { values: [...(head ?? []), ...(tail ?? [])] } }
  }
  const last = head[head.length - 1]!
  const next = tail[0]!
  const canMerge = (isString(last) && isString(next)) || (last.listValue && next.listValue)
  const values = canMerge ? [...head.slice(0, -1), mergeCut(last, next), ...tail.slice(1)] : [...head, ...tail]
  return { listValue: { values } }
}

function isString(value: WireValue): boolean {
  return typeof value.stringValue === 'string' && !value.listValue
}
