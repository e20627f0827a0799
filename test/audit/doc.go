// Package audit compares what an identity may do (its roles) with what it did (the API servers' audit logs): nothing that it may should go
// unused, and nothing that it asks for should be refused.
package audit
