package desired

// What the external tests need to see of the gate that every object passes.
var (
	MintMgmt  = mintMgmt
	MintGuest = mintGuest
)
