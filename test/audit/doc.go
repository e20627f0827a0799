// Package audit compares the permissions of an identity (its roles) with its requests (the API servers' audit logs).
// No permission should be unused, and no request should be refused.
package audit
