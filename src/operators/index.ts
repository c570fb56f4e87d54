/** Operators: everything here works on streams of deliveries and keeps the duty to settle them. */
export { type BatchOptions, batch } from './batch.ts'
export type { CallbackOptions } from './callback-operator.ts'
export { filter } from './filter.ts'
export { flatMap } from './flat-map.ts'
export { map } from './map.ts'
export { type ParMapContext, type ParMapOptions, parMap } from './par-map.ts'
export { tap } from './tap.ts'
export { type Typed, typed } from './typed.ts'
