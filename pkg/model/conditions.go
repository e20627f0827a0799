package model

// ConditionDomain begins the types of hypergate's conditions on the HostedControlPlane. Other conditions there are others'.
const ConditionDomain = "gateway.hypergate.dev/"
