/** Values of a result as a tree, for the few that are sent in pieces: read, joined, and written again as bytes. */
import { MalformedRecord } from './malformed.ts'
import { VALUE_KIND, type WireReader } from './wire-reader.ts'

export type ValueTree =
  | { readonly kind: 'list'; readonly elements: readonly ValueTree[] }
  | { readonly kind: 'text'; readonly bytes: Buffer }
  /** A value that is never cut, as it is encoded. */
  | { readonly kind: 'whole'; readonly bytes: Buffer }

/** Copies what it needs: the tree outlives its message. */
export function readTree(reader: WireReader, start: number, end: number, depth = 0): ValueTree {
  if (depth > MAX_DEPTH) throw new MalformedRecord('a value', `is nested deeper than ${MAX_DEPTH} levels`)
  reader.openValue(start, end)
  const { kind, contentStart, contentEnd, bytes } = reader
  if (kind === VALUE_KIND.string) return { kind: 'text', bytes: Buffer.from(bytes.subarray(contentStart, contentEnd)) }
  if (kind !== VALUE_KIND.list) return { kind: 'whole', bytes: Buffer.from(bytes.subarray(start, end)) }
  const elements: ValueTree[] = []
  reader.at = contentStart
  while (reader.hasElement(contentEnd)) {
    const stop = reader.lengthEnd(contentEnd)
    elements.push(readTree(reader, reader.at, stop, depth + 1))
    reader.at = stop
  }
  return { kind: 'list', elements }
}

/** Texts are joined; lists are joined, and the two elements at the cut are joined in turn if they can be. */
export function joinTrees(first: ValueTree, rest: ValueTree): ValueTree {
  if (first.kind === 'text' && rest.kind === 'text') {
    return { kind: 'text', bytes: Buffer.concat([first.bytes, rest.bytes]) }
  }
  if (first.kind !== 'list' || rest.kind !== 'list') {
    throw new MalformedRecord('a value', 'is sent in pieces that do not fit')
  }
  const last = first.elements.at(-1)
  const next = rest.elements[0]
  const areJoined = last !== undefined && next !== undefined && last.kind === next.kind && last.kind !== 'whole'
  if (!areJoined) return { kind: 'list', elements: [...first.elements, ...rest.elements] }
  return {
    kind: 'list',
    elements: [...first.elements.slice(0, -1), joinTrees(last, next), ...rest.elements.slice(1)],
  }
}

/** The tree as the bytes of a `Value`. */
export function writeTree(tree: ValueTree): Buffer {
  if (tree.kind === 'whole') return tree.bytes
  if (tree.kind === 'text') return Buffer.concat([header(TEXT, tree.bytes.length), tree.bytes])
  const parts: Buffer[] = []
  for (const element of tree.elements) {
    const value = writeTree(element)
    parts.push(header(ELEMENT, value.length), value)
  }
  const contents = Buffer.concat(parts)
  return Buffer.concat([header(LIST, contents.length), contents])
}

function header(tag: number, length: number): Buffer {
  const bytes = [tag]
  let rest = length
  while (rest > 0x7f) {
    bytes.push((rest & 0x7f) | 0x80)
    rest >>>= 7
  }
  bytes.push(rest)
  return Buffer.from(bytes)
}

const TEXT = 0x1a
const LIST = 0x32
const ELEMENT = 0x0a
const MAX_DEPTH = 200
