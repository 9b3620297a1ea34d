class Stack[T]:
    pass
type Alias = list[int]
print(Stack, Alias)
