/** The gRPC status codes, and which of them may be gone at the next try. */

export const GRPC_CODES = {
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const

export type GrpcCode = keyof typeof GRPC_CODES

/** The codes after which the same query may succeed. */
export const PASSING_CODES: readonly GrpcCode[] = [
  'CANCELLED',
  'UNKNOWN',
  'DEADLINE_EXCEEDED',
  'RESOURCE_EXHAUSTED',
  'ABORTED',
  'INTERNAL',
  'UNAVAILABLE',
]

/** The name of a code's number; undefined for what is no error code. */
export function grpcCodeOf(number: number): GrpcCode | undefined {
  return (Object.keys(GRPC_CODES) as GrpcCode[]).find((name) => GRPC_CODES[name] === number)
}
